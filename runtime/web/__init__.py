"""What servers of Satchel share: the page, tasks by HTTP, and MCP.

address   where one listens
names     the names that one is reached by, against sites that lead a name of theirs to this machine
token     what requests have to show
guesses   slows down those who guess it
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from .address import Address, address_of, bound
    from .guesses import Guesses
    from .names import Names, is_address
    from .token import given_token, is_bearer, tokens_of
