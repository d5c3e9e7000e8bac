"""Channels to Unix sockets of a host, as `ssh -L PORT:/path` makes them.

OpenSSH's extension direct-streamlocal@openssh.com: the socket's path, a string and a number that are reserved;
https://github.com/openssh/openssh-portable/blob/master/PROTOCOL (section 2.4). They are no sessions, of which sshd lets
a connection have ten at a time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paramiko import Channel
    from paramiko import Transport as Connection

KIND = "direct-streamlocal@openssh.com"


def open_streamlocal(connection: Connection, path: str, timeout: float) -> Channel:
    """A channel to the socket at a path. Raises what Transport.open_channel of paramiko does.

    It is paramiko's open_channel for a kind of channel that paramiko does not know.
    """
    from paramiko import Channel, Message, SSHException
    from paramiko.common import cMSG_CHANNEL_OPEN

    inner: Any = connection
    with inner.lock:
        window, packet = inner._sanitize_window_size(None), inner._sanitize_packet_size(None)
        number = inner._next_channel()
        message = Message()
        message.add_byte(cMSG_CHANNEL_OPEN)
        message.add_string(KIND)
        for each in (number, window, packet):
            message.add_int(each)
        message.add_string(path)
        message.add_string("")
        message.add_int(0)
        made: Any = Channel(number)
        inner._channels.put(number, made)
        inner.channel_events[number] = answered = threading.Event()
        inner.channels_seen[number] = True
        made._set_transport(inner)
        made._set_window(window, packet)
    inner._send_user_message(message)
    deadline = time.monotonic() + timeout
    while not answered.wait(0.1) and inner.active:
        if time.monotonic() > deadline:
            raise SSHException("no answer to the opening of a channel")
    channel: Channel | None = inner._channels.get(number)
    if channel is None or not answered.is_set():
        raise inner.get_exception() or SSHException("the channel could not be opened")
    return channel
