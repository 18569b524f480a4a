"""Other ways to look at runs and to act on them. Each is a plugin that the command line finds by its entry point.

web     the page (`satchel page`), and tasks by HTTP (`satchel serve --listen`)
watch   runs in a terminal (`satchel watch`)
mcp     runs for other agents (`satchel mcp`)
"""
