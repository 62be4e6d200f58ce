"""The report of a namespace: what was not received or settled, was refused, or would not work in Azure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import Field

from config.model.report_kinds import DEFAULT_FAIL_ON, FAIL_ON, REPORT_KINDS, parse_fail_on
from protocol.http.control.control_errors import bad_field
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call

XML = "application/xml"


class ReportFormat(StrEnum):
    """How a report is written."""

    JSON = "json"
    JUNIT = "junit"


class ReportQuery(RequestModel):
    """How the report is written, and what is a failure."""

    format: ReportFormat = Field(ReportFormat.JSON, description="json, or junit: XML")
    fail_on: str | None = Field(
        None,
        max_length=1_000,
        description=f"which findings are failures: {FAIL_ON}. By default {', '.join(DEFAULT_FAIL_ON)}",
        examples=["dead_letters,refused"],
    )


class ReportFindingAnswer(AnswerModel):
    """One finding."""

    kind: str
    entity: str = Field(description="empty: the namespace, or not known")
    sentence: str
    count: int = Field(description="messages, requests or locks")
    message_ids: list[str | None] = Field(description="of the first messages, if they are known")
    is_exact: bool = Field(description="false: there may be more")
    details: dict[str, Any] = Field(description="such as reason, operation, condition or limit")


class ReportKindAnswer(AnswerModel):
    """The findings of one kind together."""

    kind: str = Field(description=", ".join(one.name for one in REPORT_KINDS))
    expectation: str = Field(description="what holds if there are none")
    is_failure: bool = Field(description="whether such findings are failures")
    is_passed: bool
    findings: int
    count: int


class ReportAnswer(AnswerModel):
    """The report of a namespace."""

    namespace: str
    since: str = Field(description="from when on it counts, in real time")
    since_event: str = Field(
        description="what happened then: start of the broker; creation, restore or reset of the namespace; or request"
    )
    time: str = Field(description="in real time")
    is_passed: bool
    fail_on: list[str]
    kinds: list[ReportKindAnswer]
    findings: list[ReportFindingAnswer]


class ReportBeganAnswer(AnswerModel):
    """A new report has begun."""

    namespace: str


async def get_report(call: Call) -> Answer:
    """Returns the report of a namespace."""
    query: ReportQuery = call.query
    fail_on = DEFAULT_FAIL_ON
    if query.fail_on is not None:
        try:
            fail_on = parse_fail_on(query.fail_on)
        except ValueError:
            names = ", ".join(one.name for one in REPORT_KINDS)
            raise bad_field(
                "fail_on", f"The field 'fail_on' must be {FAIL_ON}; names are {names}."
            ) from None
    reports = call.services.reports
    report = await reports.report(call.namespace, fail_on)
    if query.format is ReportFormat.JUNIT:
        return web.Response(text=reports.junit([report]), content_type=XML)
    return report


async def begin_report(call: Call) -> Answer:
    """Forgets what has happened so far. Messages that are there stay, and stay findings."""
    call.services.reports.begin(call.namespace, "request")
    return {"namespace": call.namespace}


ROUTES = (
    Route(
        "GET",
        "/report",
        "getReport",
        "Report messages that nobody received or settled, dead letters, refusals, and what Azure would have refused",
        get_report,
        ReportAnswer,
        query=ReportQuery,
        other_forms=(XML,),
    ),
    Route(
        "DELETE",
        "/report",
        "beginReport",
        "Begin a new report: forget what has happened in the namespace so far",
        begin_report,
        ReportBeganAnswer,
    ),
)
