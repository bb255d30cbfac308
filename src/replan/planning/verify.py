"""What a step gave, named as the plan says, and whether it is as the plan says."""

import msgspec

from replan.calls import Call, start_call, take_call_outcome, tell_call, tell_result
from replan.durable import Completed, Durable, Failed
from replan.encoding import JSON, JSONObject, is_object

from .checks import as_expected
from .references import MissingReference, pick, resolve
from .state import PlanningState
from .trace import StepResult

__all__ = ["verified"]


async def verified(durable: Durable, state: PlanningState, result: StepResult) -> StepResult:
    """The result with the outputs that the step names, or with what is wrong with them."""
    step, outputs = result.step, dict(result.outputs)
    try:
        for name, path in step.from_.items():
            outputs[name] = pick(result.outputs.get("result"), path)
    except (MissingReference, ValueError) as error:
        return msgspec.structs.replace(result, problem=f"the output is not there: {error}")
    value = outputs.get("result")
    outputs = {**{n: value[n] for n in step.produces if is_object(value) and n in value}, **outputs}
    result = msgspec.structs.replace(result, outputs=outputs)
    produced: JSONObject = {"type": "object", "properties": step.produces, "required": list(step.produces)}
    checks: list[JSON] = [*([{"schema": produced}] if step.produces else []), *([step.check] if step.check else [])]
    for number, check in enumerate(checks):
        if reason := await _check(durable, state, result, check, f"step/{step.id}/check{number}"):
            return msgspec.structs.replace(result, problem=reason)
    return result


async def _check(durable: Durable, state: PlanningState, result: StepResult, check: JSON, key: str) -> str | None:
    """Why a check does not hold; None where it does."""
    if is_object(check) and is_object(call := check.get("call")):
        return await _check_by_call(durable, state, result, check, call, key)
    durable.start("check", {"check": check, "outputs": result.outputs}, key=key)
    match (await durable.next()).outcome:
        case Completed(reason):
            return reason
        case Failed(error):
            return f"the check could not be made: {error['message']}"
        case _:
            return "the check was cancelled."


async def _check_by_call(
    durable: Durable, state: PlanningState, result: StepResult, check: JSONObject, planned: JSONObject, key: str
) -> str | None:
    tool = state.tools.get(planned["tool"])
    if tool is None or tool["writes"]:
        return f"the check could not be made: {planned['tool']!r} is no tool that only reads."
    try:
        arguments = resolve(planned.get("arguments") or {}, {**state.outputs, result.step.id: result.outputs})
    except MissingReference as error:
        return f"the check could not be made: {error}"
    call = Call(key.replace("/", "-"), planned["tool"], arguments)
    if not state.meter.take_tool_call():
        return "the check could not be made: the tool-call budget of this run is exhausted."
    await tell_call(durable, result.step.id, call)
    start_call(durable, result.step.id, call, key)
    completion = await durable.next()
    take_call_outcome(durable, result.step.id, call, completion)
    await tell_result(durable, result.step.id, call, completion.at)
    if not call.ok:
        return f"the check failed: {call.tool} gave an error: {call.text}"
    unexpected = as_expected(call.value, check.get("expect"))
    return f"the check failed: {call.tool}: {unexpected}" if unexpected else None
