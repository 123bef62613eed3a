"""The blocking client, for scripts: the methods of ``veen_hub.client`` without ``await``.

    alice = Identity.load("alice", passphrase)
    with connect("https://hub.example", alice, trust="<hub_id>", state="alice/state") as hub:
        for message in hub.stream("orders").read():
            print(message.text)

Each connection runs an event loop in a thread of its own. Ctrl-C cancels the call under way and is raised
once that call has ended.
"""

from veen_hub.client.blocking.connecting import connect
from veen_hub.client.blocking.hub import BlockingAdmin, BlockingHub
from veen_hub.client.blocking.sending import BlockingSending
from veen_hub.client.blocking.stream import BlockingStream

__all__ = ["BlockingAdmin", "BlockingHub", "BlockingSending", "BlockingStream", "connect"]
