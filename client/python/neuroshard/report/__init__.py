"""Reports that people look at: plans and cost models as self-contained HTML, and in notebooks.

    neuroshard-report PLAN.json --out report.html

In a notebook:

    from neuroshard import report
    report.show(response)            # a ShardPlanResponse, EvaluatePlanResponse or Plan
    %load_ext neuroshard.report      # from then on such a message shows itself
"""

from typing import Optional

from google.protobuf.message import Message

from neuroshard.report.answer import answer_of
from neuroshard.report.command import main
from neuroshard.report.markup import tag
from neuroshard.report.plan_page import plan_page
from neuroshard.v1 import plan_pb2, planner_pb2

__all__ = ["PlanReport", "load_ipython_extension", "main", "show"]


class PlanReport:
    """The report of one plan; a notebook shows it in a frame that runs no scripts and lets no style out."""

    def __init__(self, html: str):
        self.html = html

    def _repr_html_(self) -> str:
        return tag("iframe", sandbox="", srcdoc=self.html, style="width:100%;height:46rem;border:1px solid #d9dbe0")


def show(response: Message, before: Optional[Message] = None) -> PlanReport:
    """The report of a planner's answer; with `before` also what changed. Raises TypeError for messages that have no plan or cost."""
    other = ("the plan before", answer_of(before)) if before is not None else None
    return PlanReport(plan_page(answer_of(response), "this answer", other))


def load_ipython_extension(ipython) -> None:
    """`%load_ext neuroshard.report`."""
    formatter = ipython.display_formatter.formatters["text/html"]
    for kind in (planner_pb2.ShardPlanResponse, planner_pb2.EvaluatePlanResponse, plan_pb2.Plan):
        formatter.for_type(kind, lambda message: show(message)._repr_html_())
