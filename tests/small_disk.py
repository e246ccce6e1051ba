"""Files that cannot grow, as on a full disk."""

import resource


class SmallDisk:
    """No file of this process grows beyond some bytes."""

    def __init__(self, size: int):
        self._size = size

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *exception: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
