"""The tasks in a Markdown text, and changes of the text."""
