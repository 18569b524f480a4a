"""Other frameworks over a workspace: one module for each, on what `satchel` itself hands on.

Importing Satchel loads none of them, because each needs its framework.
"""
