"""Coverage: for every attention module, seen how, or not seen and why."""

from __future__ import annotations

from regard.lens._session import Session
from regard.records import Coverage

_VIA = {
    "interface": "through the library's attention interface",
    "functional": "through torch's attention function",
    "attend": "through regard.attend",
    "softmax": "from its own softmax",
}


def coverage(session: Session) -> tuple[Coverage, ...]:
    """Account for every module that attends or looks as if it could.

    Returns:
        One entry per module, in the order of the model: ``seen``, ``partly`` (some calls, or with an assumption), or
        ``not seen``.
    """
    ways: dict[str, list[str]] = {}
    for layer in session.layers:
        ways.setdefault(layer.name, []).append(layer.via)
    order = {name: place for place, name in enumerate(session.names.values())}
    noted = {name for texts in (session.refusals, session.remarks) for name, lines in texts.items() if lines}
    names = sorted({*session.candidates, *ways, *noted}, key=lambda name: order[name])
    return tuple(_entry(session, name, ways.get(name, [])) for name in names)


def _entry(session: Session, name: str, ways: list[str]) -> Coverage:
    refusals, remarks = session.refusals.get(name, []), list(session.remarks.get(name, []))
    if name in session.fused:
        remarks.append("torch's fused fast path, where it applies, is off while watched: outputs agree to about 1e-6")
    if ways:
        how = ", ".join(_VIA[way] for way in dict.fromkeys(ways))
        status = "partly" if refusals else "seen"
        return Coverage(name, status, "; ".join([how, *refusals, *remarks]))
    return Coverage(name, "not seen", "; ".join([*(refusals or [_why(session, name)]), *remarks]))


def _why(session: Session, name: str) -> str:
    if session.pattern is not None and session.pattern.search(name) is None:
        return f"left out by modules={session.pattern.pattern!r}"
    if session.candidates.get(name):
        return "no softmax attention (linear attention, a state space or a recurrence)"
    if name in session.called:
        return "called, but no attention function or softmax of a known form was met in it"
    return "never called"
