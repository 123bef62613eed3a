"""The evidence of an answer on Spark, and the result file (query-api §6, RESOLUTIONS P13)."""

from __future__ import annotations

from collections.abc import Sequence

from veen_overlays.query.engine import DEFAULT_BUDGET, Budget, QueryAnswer
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.evidence import HubLogLink, build_evidence, chosen
from veen_overlays.query.result.inclusion import gap_subtrees, prove_from_nodes
from veen_overlays.query.result.result_file import Execution, ResultFile, make_result
from veen_spark.query.engine import SparkEngine
from veen_spark.query.event_view import EventView
from veen_spark.query.prefix_rows import rows_of
from veen_spark.query.tree_nodes import TreeNodes, compute_nodes


class SparkEvidence:
    """An ``EvidenceSource``: heads and leaves from the rows of the query, links from exports."""

    def __init__(
        self, view: EventView, engine: SparkEngine, descriptor: QueryDescriptor, answer: QueryAnswer
    ) -> None:
        self._view, self._engine = view, engine
        self._number = {bytes(prefix.label): number for number, prefix in enumerate(answer.coverage)}
        self._nodes = self._computed(descriptor, answer)

    def _computed(self, descriptor: QueryDescriptor, answer: QueryAnswer) -> TreeNodes:
        """Compute the nodes that the proofs of all sources need, in one pass."""
        picked: dict[int, list[int]] = {}
        for each in chosen(descriptor, answer.sources):
            picked.setdefault(each.source, []).append(each.seq)
        wanted = {n: list(gap_subtrees(seqs, answer.coverage[n].to_seq)) for n, seqs in picked.items()}
        if not any(wanted.values()):
            return TreeNodes({})
        return compute_nodes(rows_of(self._view.frame, answer.coverage), wanted)

    def head(self, prefix: Prefix) -> bytes | None:
        """Return the RECEIPT of ``to_seq``."""
        return self._engine.heads[bytes(prefix.label), prefix.to_seq] or None

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        """Return the inclusion proof of these entries; ``build_evidence`` verifies it."""
        number = self._number[bytes(prefix.label)]
        return prove_from_nodes(lambda h, i: self._nodes.node(number, h, i), seqs, prefix.to_seq)

    def link(self, prefix: Prefix) -> HubLogLink | None:
        """Return an export's proofs up to a hub checkpoint; None if the prefix ends before the export."""
        whole = any((p.label, p.to_seq) == (prefix.label, prefix.to_seq) for p in self._view.prefixes)
        return self._view.links.get(bytes(prefix.label)) if whole and prefix.checkpoint else None


def run_query(
    view: EventView,
    descriptor: QueryDescriptor,
    *,
    executed_at: int,
    prefixes: Sequence[Prefix] | None = None,
    budget: Budget = DEFAULT_BUDGET,
) -> ResultFile:
    """Execute a query, verify its evidence and return the result file.

    Without ``prefixes`` the query reads everything that the view has. ``executed_at`` is in milliseconds. No
    hub executes a query on Spark; the digest names the hub of the first source.
    """
    engine = SparkEngine(view)
    read = engine.prefixes(descriptor.scope) if prefixes is None else prefixes
    answer = engine.execute(descriptor, read, budget)
    evidence = build_evidence(
        descriptor, answer, SparkEvidence(view, engine, descriptor, answer), view.identities
    )
    execution = Execution(executed_at=executed_at, hub_id=read[0].hub_id.hex())
    return make_result(descriptor, answer, evidence, execution)
