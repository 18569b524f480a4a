"""Records, statuses, questions, calls and values in words and tones, once for all faces: the command line, the page,
the terminal view and MCP only lay out what they get from here.

status_words    where a run is and why, how far its plan is, what it has cost, and what waits for it or for a person
question_words  an open question, what its file says, and the ways to answer it
timeline_words  records with the time that each has taken; a call, its result, and a call that is tried again
value_words     times, money and JSON values; the colour of each tone, and the tone of what has no words of its own
record_words    a record: it lies in `workspace/views/`, since the `why.md` of a checkpoint has these words, too
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from ...workspace.base import counted, cut, duration, one_line, since, size
    from ...workspace.views import RecordWords, describe_record, place_words
    from .question_words import (
        choice_meaning,
        context_text,
        describe_answer,
        describe_reply,
        expiry_line,
        place_asked,
        typed_value,
    )
    from .status_words import (
        AgentLine,
        StatusLine,
        agent_lines,
        answered,
        approval_line,
        at_work_line,
        budget_lines,
        cost,
        describe_stop,
        detail,
        done_of,
        failure_line,
        failure_text,
        file_lines,
        fraction,
        inbox_line,
        not_called,
        pause_lines,
        progress,
        run_id_of,
        schedule_lines,
        uncalled_line,
        usage_line,
        why_lines,
    )
    from .timeline_words import Timeline, TimelineEvent, call_name, describe_call, describe_retry, stream_name
    from .value_words import CALLS, CHANGES, MARKS, REMARKS, SERVE_EVENTS, ago, colour, json_line, state_colour, usd
