"""What people have done to the readable files while nobody was running them: noticed, merged, asked about, or refused.

    found.py       what can be found out about a file, and about all of them
    look.py        what can be told of a file by its bytes alone
    state.py todo.py steps.py definition.py     one kind of file each
    notice.py      all of them, and what an edit of one agent means for those above it
    keeping.py     where refused and conflicting versions are kept

Looking changes nothing: `satchel check` and `status` do it too. The opening (../opening.py) then does what was found.
"""

from .found import CheckData, Edit, Noticed, Question, Refusal, Side
from .notice import notice, untaken

__all__ = ["CheckData", "Edit", "Noticed", "Question", "Refusal", "Side", "notice", "untaken"]
