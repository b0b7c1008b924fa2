"""Limits that the operating system sets to a process."""

import contextlib
import resource


def raise_file_limit(wanted: int) -> str | None:
    """Raise the limit of open files to what the system allows, and return a warning if that is too few.

    Args:
        wanted: File descriptors that the process is to hold: its connections, and some hundreds for the rest.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems cap lower than the hard limit that they report, so what is wanted is tried as well.
    if not _raise_to(hard):
        _raise_to(wanted)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    return (
        f"this process may open {soft} files and needs {wanted} for the connections it is configured for: "
        "raise the hard limit (ulimit -Hn, LimitNOFILE= in a systemd unit)"
    )


def _raise_to(target: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (resource.RLIM_INFINITY, hard) or resource.RLIM_INFINITY != target <= soft:
        return True
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return True
    return False
