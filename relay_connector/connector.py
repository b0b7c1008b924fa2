"""The connector: a question for a person's own devices, as a durable action."""

from typing import Final

from durable_service.client.actions import ActionInput, ApprovalNeed
from durable_service.client.connectors import Connector
from durable_service.client.records import Records
from relay_connector.asking import Asking, Terms
from relay_connector.question import AudienceName, Question
from relay_service.client.payloads import Payload
from relay_service.client.site import Site
from service_common.clocks import Clock, SystemClock

VERSION: Final = "relay@1"
KEEP_MS: Final = 604_800_000


class RelayConnector:
    """Asks through the relay. Give it to `context.execute`, and to the `Worker` among its connectors.

        async with Site("127.0.0.1:7443", site_id="shop", keys=keys) as site:
            relay = RelayConnector(site)
            ...
            question = relay.ask("ask", GeneratePayload("Say hello."), owner="alice", deadline_at_ms=...)
            answer = await read_answer(context.records, await context.execute(question, relay))

    One object serves all tasks of a process. The site stays the caller's, and has to be open.

    Attributes:
        version: `relay@1`.
        destination: Bound into the actions: `relay:` and the id of the site.
    """

    def __init__(
        self,
        site: Site,
        *,
        destination: str | None = None,
        again: bool = False,
        keep_ms: int = KEEP_MS,
        clock: Clock | None = None,
    ) -> None:
        """Ask as this site.

        Args:
            site: Every worker that may look an action up uses one of the same id and keys, at the same relay.
            destination: The name that actions know it by, in place of `relay:` and the site's id.
            again: Give the prompt to another device when the one that had it is gone. It may then run more
                than once. Without it the answer is then `none`, and the handler decides whether to ask anew.
            keep_ms: For how long an answer is kept beside its task, milliseconds.
            clock: Times everything.
        """
        self.version = VERSION
        self.destination = destination or f"relay:{site.site_id}"
        self._terms = Terms(self.destination, again, keep_ms, clock or SystemClock())
        self._site = site

    def ask(
        self,
        action_id: str,
        payload: Payload | str,
        *,
        owner: str,
        deadline_at_ms: int,
        kind: str | None = None,
        audience: AudienceName = "private",
        purpose: str | None = None,
        approval: ApprovalNeed | None = None,
    ) -> ActionInput:
        """Return the action that asks a question.

        Args:
            action_id: The same whenever the handler runs again. A question that has got no answer is asked
                anew under another id.
            payload: What is to be done; text for a kind of your own.
            owner: The person whose devices are asked.
            deadline_at_ms: After this instant, epoch milliseconds, no answer is wanted. It is part of the
                action, so reckon it from what is the same in every run: `context.task.created_at_ms`.
            kind: The kind of work; that of the payload by default.
            audience: `private` for devices of the owner alone, `team` for those that admit the owner too.
            purpose: A need that the site has declared.
            approval: Whose word it needs.

        Raises:
            ValueError: A text without a kind, or a payload that cannot be spelled.
        """
        if isinstance(payload, str) and kind is None:
            raise ValueError("a payload that is given as text needs a kind")
        named = payload.kind if kind is None and not isinstance(payload, str) else kind or ""
        question = Question(payload, named, owner, audience, purpose, deadline_at_ms)
        return ActionInput(action_id, self.destination, question.to_args(), approval)

    def bind(self, records: Records) -> Connector:
        """Return the connector for the task of these records."""
        return Asking(self._site, records, self._terms)
