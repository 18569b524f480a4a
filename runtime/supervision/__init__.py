"""Processes that look after processes: a run's supervisor, `serve` for many, and the emergency stop.

signals       signals as bytes that a loop waits for
glancing      what pause.yaml says, while signals are to be heard, and over a network
lifeline      the child's end of the pipe by which it learns that its supervisor is gone
child         starts one child and talks to it
deadline      when a child must have stopped, whatever has asked for that
supervisor    when a child is drained, killed, and started again
aftermath     what is put right when a child was killed
background    a supervisor that outlives the terminal
judging       which workspaces may be started, as their files stand
roots         where workspaces are looked for
serving       many workspaces, a few at a time
processes     tells processes apart for certain, and kills them
stopping      the emergency stop
"""
