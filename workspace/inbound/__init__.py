"""What people and programs put in: their edits of the readable files, their answers to questions, which are typed into
the files in approvals/, and the tasks and messages in inbox/.

    detection.py       finds all edits: each kind is one of plan_edits, json_edits, message_edits and held_files
    rewind_record.py   returns to an earlier record, and asks about files that were copied from checkpoints/
    findings.py        what a look finds: edits, conflicts, files to refuse
    rejection.py       keeps what is refused next to its file
    question.py        a question to a person, form.py its file as text, approval_files.py the files as they are kept
    inbox.py           what waits in inbox/, and how it is taken; archive.py is where it goes afterwards
"""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import archive, detection, inbox, rejection, rewind_record
    from .approval_files import ApprovalFiles, answer_text, filled_in, nothing_has_come, outcome_text, read_form
    from .archive import INBOX
    from .detection import (
        being_saved,
        cut_off,
        describe_saving,
        editable,
        judge,
        notice,
        notice_saved,
        reopen_parents,
        untaken,
        until_saved,
    )
    from .findings import (
        CheckData,
        ConflictChoice,
        ConflictPlace,
        FileConflict,
        Noticed,
        RejectedFile,
        Side,
        with_choices,
    )
    from .form import (
        Reply,
        blank,
        check_standing,
        fill_in,
        fit_arguments,
        fit_decision,
        form_problems,
        properties_of,
        read_reply,
        typed_arguments,
    )
    from .held_files import saved_files
    from .inbox import Arrivals, InboxFile, Offered
    from .message_edits import CutOff
    from .question import APPROVALS, APPROVE, DENY, Question, find_question, open_questions, path_of, with_changes
    from .rejection import is_known, not_settled, reject
    from .rewind_record import Point, Return
