"""Queue with a turn for each client: a client with many grades delays the first grade of another by one turn."""

from collections import OrderedDict, deque


class FairQueue:
    """Waiting grades of all clients. Clients take turns; the grades of a client keep their order.

    >>> queue = FairQueue()
    >>> for client, grade in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")]:
    ...     queue.put(client, grade)
    >>> [queue.take() for _ in range(4)]
    [('a', 'a1'), ('b', 'b1'), ('a', 'a2'), ('a', 'a3')]
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, client: str, grade: str) -> None:
        """Add a grade behind all grades of the client."""
        self._waiting.setdefault(client, deque()).append(grade)
        self._length += 1

    @property
    def first(self) -> str:
        """Return the grade that `take` would remove. Raises IndexError if the queue is empty."""
        for grades in self._waiting.values():
            return grades[0]
        raise IndexError("the queue is empty")

    def take(self) -> tuple[str, str]:
        """Remove and return the next client and grade. Raises IndexError if the queue is empty."""
        if not self._waiting:
            raise IndexError("the queue is empty")
        client, grades = self._waiting.popitem(last=False)
        grade = grades.popleft()
        if grades:
            self._waiting[client] = grades  # behind all other clients
        self._length -= 1
        return client, grade

    def remove(self, client: str, grade: str) -> bool:
        """Remove a grade. Return false if the grade does not wait."""
        grades = self._waiting.get(client)
        if grades is None or grade not in grades:
            return False
        grades.remove(grade)
        if not grades:
            del self._waiting[client]
        self._length -= 1
        return True
