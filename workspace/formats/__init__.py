"""The YAML and JSON dialects, workspace.yaml and pause.yaml: one parser for each format."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import definition, jsontext, pause_file, yamltext
    from .definition import Budget, Checkpoints, Definition, Keep, Rule, ScheduledTask, Webhook, Window, parse
    from .jsontext import decoder
    from .pause_file import PauseFile
    from .yaml_reader import YamlDocument
