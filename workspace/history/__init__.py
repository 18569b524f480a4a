"""Read any moment of a run, and what led to it. Changes nothing, takes nothing, runs nothing."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from .moments import moment_at
    from .positions import LATEST, seq_of
    from .reading import Records, gone, kept_from, records_of
