"""Where the tasks of a Markdown text are, and how the text is changed."""
