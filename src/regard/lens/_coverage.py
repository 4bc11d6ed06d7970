"""Coverage: for every attention module, seen how, or not seen and why."""

from __future__ import annotations

from regard.lens._attention_like import attention_modules, has_no_softmax
from regard.lens._session import Session
from regard.records import Coverage

_VIA = {
    "interface": "through the library's attention interface",
    "functional": "through torch's attention function",
    "softmax": "from its own softmax",
}


def coverage(session: Session) -> tuple[Coverage, ...]:
    """Account for every module that attends or looks as if it could.

    Returns:
        One entry per module, in the order of the model: ``seen``, ``partly`` (some calls, or with an assumption), or
        ``not seen``.
    """
    modules = attention_modules(session.model)
    ways: dict[str, list[str]] = {}
    for layer in session.layers:
        ways.setdefault(layer.name, []).append(layer.via)
    order = {name: place for place, name in enumerate(session.names.values())}
    names = sorted({*modules, *ways, *session.refusals, *session.remarks}, key=lambda name: order[name])
    return tuple(_entry(session, name, ways.get(name, []), linear=_linear(modules, name)) for name in names)


def _linear(modules: dict[str, object], name: str) -> bool:
    module = modules.get(name)
    return module is not None and has_no_softmax(module)  # type: ignore[arg-type]


def _entry(session: Session, name: str, ways: list[str], *, linear: bool) -> Coverage:
    refusals, remarks = session.refusals.get(name, []), list(session.remarks.get(name, []))
    if name in session.fused:
        remarks.append("torch's fused fast path, where it applies, is off while watched: outputs agree to about 1e-6")
    if ways:
        how = ", ".join(_VIA[way] for way in dict.fromkeys(ways))
        status = "partly" if refusals else "seen"
        return Coverage(name, status, "; ".join([how, *refusals, *remarks]))
    return Coverage(name, "not seen", "; ".join([*(refusals or [_why(session, name, linear)]), *remarks]))


def _why(session: Session, name: str, linear: bool) -> str:
    if session.pattern is not None and session.pattern.search(name) is None:
        return f"left out by modules={session.pattern.pattern!r}"
    if linear:
        return "no softmax attention (linear attention, a state space or a recurrence)"
    if name in session.elsewhere:
        return "called from another thread, where torch's function modes do not reach"
    if name in session.called:
        return "called, but no attention function or softmax of a known form was met in it"
    return "never called"
