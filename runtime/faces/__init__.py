"""Other ways to look at runs and to act on them. Each is a plugin that the command line finds by its entry point.

http    who may ask a server, tasks by HTTP (`satchel serve --listen`), and metrics
web     the page (`satchel page`)
watch   runs in a terminal (`satchel watch`)
mcp     runs for other agents (`satchel mcp`)
"""
