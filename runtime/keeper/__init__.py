"""Model calls that outlive the process of their agent: a proxy on loopback that reads each answer to its end.

addresses  where a run reaches its keeper, whom that asks, and what the two tell each other
proxy      the keeper itself: relays requests, and gives the answer that is there to an equal one
held_answers   what it has of each run, in memory and in files
answer_files  the files of answers in the folder of a run
wire       what an answer says, in the formats of the providers
client     the keeper as the process of a run sees it

The supervisor starts it (supervision/sharing.py), or `satchel keeper`.
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import addresses
    from .addresses import Paid
    from .answer_files import digest_of_step
    from .client import KeeperLink, StepAtKeeper, address_of, sums
    from .proxy import keep
