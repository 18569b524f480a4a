"""The JSON Schemas (draft 2020-12) of each file of a workspace, and the validator.

The lowest layer: imports nothing of Satchel. It reports problems; the layers above decide what to do about them.
"""

# mypy: implicit-reexport

from .problem import Problem, Where, dotted, nearest, short
from .validate import against, names, of_result, problems, schema, text
