"""Records, statuses, questions, calls and values in words and tones, once for all faces: the command line, the page,
the terminal view and MCP only lay out what they get from here.

status_words    where a run is and why, how far its plan is, what it has cost, what waits for it or for a person; and
                two compared moments next to each other
decision_words  an open question and the ways to answer it; a conflict between a file and the run, and what each choice
                does; why a run does not go on by itself, where, what was tried, and what to do
message_shapes  what a message of a conversation says, in the shapes of the packages that make them
usage_words     what a run has used: records with the time that each has taken, the run drawn in time, its costs in
                tables
value_words     times and JSON values; a call, its outcome, and all that its records tell of it; the colour of each
                tone, and the tone of what has no words of its own

The words of a record lie in `workspace/views/record_words.py`, since the `why.md` of a checkpoint has them, too.
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from ...workspace.base import counted, cut, duration, one_line, since, size, usd
    from ...workspace.views import RecordWords, describe_record, place_words
    from .decision_words import (
        CHOICES,
        Diagnosis,
        LimitToRaise,
        argument_rows,
        choice_line,
        choice_meaning,
        choice_tone,
        conflict_json,
        conflict_lines,
        context_text,
        covered,
        describe_answer,
        describe_reply,
        describe_revocation,
        diagnose,
        diagnosis_json,
        diagnosis_lines,
        expiry_line,
        limits_to_raise,
        offered_choices,
        place_asked,
        question_title,
        side_texts,
        typed_value,
        why_lines,
    )
    from .message_shapes import MessagePart, as_json, message_parts, message_role
    from .status_words import (
        STOPS,
        AgentLine,
        StatusLine,
        agent_lines,
        answered,
        approval_line,
        at_work_line,
        backup_lines,
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
        missing_log,
        not_called,
        pause_lines,
        progress,
        queue_lines,
        run_id_of,
        schedule_lines,
        side_rows,
        stop_counts,
        uncalled_line,
        usage_line,
    )
    from .usage_words import (
        GAPS,
        PARTS,
        Piece,
        TimeDrawing,
        Timeline,
        TimelineEvent,
        cost_curve,
        cost_json,
        cost_lines,
        cost_tables,
        describe_cost,
        draw,
        gap_line,
        mark_line,
        timing_json,
        timing_lines,
    )
    from .value_words import (
        CALLS,
        CHANGES,
        MARKS,
        REMARKS,
        SERVE_EVENTS,
        ago,
        answer_line,
        attempt_line,
        call_facts,
        call_json,
        call_name,
        colour,
        describe_call,
        describe_ms,
        describe_retry,
        detail_json,
        json_line,
        state_colour,
        stream_name,
    )
