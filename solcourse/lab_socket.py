"""The connection between JupyterLab's page and a kernel, without Nagle's delay.

jupyter_server leaves Nagle's algorithm on: a small message waits until the browser has acknowledged the one before it, which takes
up to 40 ms. A slider's answer is three small messages. `solcourse lab` starts the server with this class.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """Sends every message at once."""

    def connect(self) -> Any:
        """Opens the channels to the kernel. Returns jupyter_server's future."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()
