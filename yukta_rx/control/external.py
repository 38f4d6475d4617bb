"""External supervisors: programs of their own that steer over HTTP, each with a lease.

A program registers, reads its event stream and sends commands. Its lease is renewed by all three;
without any of them it expires, is shown so, and its commands are refused until it registers again.
A program that was switched off stays so, whatever it registers.

Feature: CTL-07.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.seat import Floor, Seat
from yukta_rx.errors import (
    ConflictError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    RoleError,
    YuktaError,
)
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from yukta_rx.control.commands.base import CommandResult
    from yukta_rx.control.inbox import Inbox
    from yukta_rx.control.supervision import Proposal
    from yukta_rx.observe.filters import EventFilter
    from yukta_rx.streams.clock import Timer

MAX_SEATS: Final = 100
"""External supervisors that may be registered."""


class ExternalSeat(Seat):
    """A program of its own.

    Attributes:
        owner: who registered it; nobody else may use the lease.
        token: with which it renews the lease.
        expired: whether the lease has run out.
    """

    remembers = False

    def __init__(self, floor: Floor, id: str) -> None:
        super().__init__(floor, id, on_stop=self._end_streams)
        self.owner = ""
        self.description = ""
        self.token = ""
        self.seconds = 0.0
        self.expired = True
        self._clock = floor.clock
        self._until = floor.clock.now()
        self._watch: Timer | None = None

    def lease(self, owner: str, description: str, seconds: float) -> None:
        """Begin a new lease."""
        self.owner, self.description = owner, description
        self.token = secrets.token_urlsafe(24)
        self.seconds = seconds
        self.expired = False
        self.touch()

    def touch(self) -> None:
        """It was used, so it lasts anew."""
        self._until = self._clock.now() + self.seconds
        if self._watch is None:
            self._watch = self._clock.call_at(self._until, self._look)

    def give_back(self) -> None:
        """The program ends and says so."""
        self.quiet()
        self.expired = True
        self._end_streams()

    def quiet(self) -> None:
        """Watch nothing any more, and tell nothing later."""
        super().quiet()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if self.inboxes:
            self.touch()  # its stream is open
        elif self._clock.now() < self._until:
            self._watch = self._clock.call_at(self._until, self._look)
        else:
            self.expired = True
            self.failed("lease_expired", f"nothing was heard of it for {self.seconds:g} s")

    def _end_streams(self) -> None:
        for inbox in tuple(self.inboxes):
            inbox.finish("supervisor_disabled" if not self.enabled else "lease_over")

    def as_dict(self) -> dict[str, Any]:
        """It as the API shows it."""
        left = self.seconds if self.inboxes else self._until - self._clock.now()
        running = "RUNNING" if self.enabled else "DISABLED"
        return super().as_dict() | {
            "external": True,
            "description": self.description,
            "state": "EXPIRED" if self.expired else running,
            "lease": {
                "seconds": self.seconds,
                "expiresAt": rfc3339(self._clock.wall() + timedelta(seconds=left)),
                "expired": self.expired,
            },
        }


class ExternalSupervisors:
    """The programs outside of the server.

    Args:
        floor: what supervisors work with.
        seats: all supervisors by id, those of the process too.
        taken: whether something else has an id.
        tune: called when event streams come or go.
    """

    def __init__(
        self,
        floor: Floor,
        seats: dict[str, Seat],
        taken: Callable[[str], bool],
        tune: Callable[[], None],
    ) -> None:
        self._floor = floor
        self._seats = seats
        self._taken = taken
        self._tune = tune

    def register(
        self, id: str, owner: str, description: str, seconds: float, token: str | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Begin a lease, or renew the one that the token is of.

        Args:
            id: the supervisor.
            owner: who asks.
            description: for people.
            seconds: how long the lease lasts without being used; 0 gives it back.
            token: of the lease.

        Returns:
            The supervisor with `leaseToken`, and whether the lease is new.

        Raises:
            ConflictError: code `in_use`: the id belongs to something that lives.
            RejectedError: too many are registered.
        """
        seat = self._seats.get(id)
        if self._taken(id) or not (seat is None or isinstance(seat, ExternalSeat)):
            raise self._in_use(id, "something inside the server has that id")
        if seat is not None and token is not None and _same(seat.token, token):
            self._check_owner(seat, owner)
            new = seat.expired and seconds > 0
            seat.description, seat.seconds, seat.expired = description, seconds, False
            seat.touch()
            if not seconds:
                seat.give_back()
            return seat.as_dict() | {"leaseToken": seat.token}, new
        if seat is not None and not seat.expired:
            until = seat.as_dict()["lease"]["expiresAt"]
            raise self._in_use(id, f"its lease lasts until {until}, or as long as it is used")
        if seat is None:
            seat = self._add(id)
        seat.lease(owner, description, seconds)
        if not seconds:
            seat.give_back()
        return seat.as_dict() | {"leaseToken": seat.token}, True

    def _add(self, id: str) -> ExternalSeat:
        mine = [seat for seat in self._seats.values() if isinstance(seat, ExternalSeat)]
        if len(mine) >= MAX_SEATS:
            # One that was switched off has to stay known, or it would come back switched on.
            gone = next((seat for seat in mine if seat.expired and seat.enabled), None)
            if gone is None:
                detail = f"{len(mine)} external supervisors are registered, as many as are allowed"
                raise RejectedError(detail, code="limit")
            gone.quiet()
            del self._seats[gone.id]
        seat = self._seats[id] = ExternalSeat(self._floor, id)
        return seat

    @contextmanager
    def listening(
        self, id: str, owner: str, filters: EventFilter, after: str | None
    ) -> Iterator[Inbox]:
        """The events of a supervisor for one event stream, behind an event if one is named.

        Raises:
            YuktaError: as `commands`.
        """
        seat = self._alive(id, owner)
        inbox = seat.open(filters, framed=True)
        try:
            inbox.begin(after)
            self._tune()
            yield inbox
        finally:
            seat.close(inbox)
            seat.touch()
            self._tune()

    async def commands(
        self, id: str, owner: str, proposals: Sequence[Proposal], *, dry_run: bool = False
    ) -> list[CommandResult | YuktaError]:
        """Carry the commands of a supervisor out in their order; what each came to.

        Raises:
            NotFoundError: there is no such supervisor.
            RoleError: the lease is somebody else's.
            ConflictError: the lease has run out, it is switched off, or it is none from outside.
            RateLimitedError: not even the first may be sent now; none was.
        """
        seat = self._alive(id, owner)
        results: list[CommandResult | YuktaError] = []
        for proposal in proposals:
            refusal = seat.admit(proposal.command, dry_run=dry_run)
            if refusal is None:
                results.append(await seat.carry_out(proposal, dry_run=dry_run))
                continue
            if isinstance(refusal, RateLimitedError) and not results:
                for refused in proposals:
                    seat.refuse(refused, refusal)
                raise refusal
            seat.refuse(proposal, refusal)
            results.append(refusal)
        return results

    def close(self) -> None:
        """Watch no lease any more."""
        for seat in self._seats.values():
            seat.quiet()

    def unknown(self, id: str) -> NotFoundError:
        """The error of an id that nothing has."""
        return NotFoundError(
            f"there is no supervisor {id}", code="supervisor_not_found", supervisorId=id
        )

    def _alive(self, id: str, owner: str) -> ExternalSeat:
        seat = self._seats.get(id)
        if seat is None:
            raise self.unknown(id)
        if not isinstance(seat, ExternalSeat):
            raise self._in_use(id, "it is inside the server")
        self._check_owner(seat, owner)
        if seat.expired:
            detail = f"the lease of supervisor {id} has run out; register it again"
            raise ConflictError(detail, code="lease_expired", supervisorId=id)
        if not seat.enabled:
            raise seat.off()
        seat.touch()
        return seat

    def _check_owner(self, seat: ExternalSeat, owner: str) -> None:
        if owner != seat.owner:
            detail = f"supervisor {seat.id} was registered with another key"
            raise RoleError(detail, supervisorId=seat.id)

    def _in_use(self, id: str, why: str) -> ConflictError:
        return ConflictError(f"supervisor {id} is in use: {why}", code="in_use", supervisorId=id)


def _same(token: str, given: str) -> bool:
    # As bytes: of text it compares only ASCII.
    return secrets.compare_digest(token.encode(), given.encode("utf-8", "surrogatepass"))
