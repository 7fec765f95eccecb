from __future__ import annotations

from typing import Any

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Journey, Observation, Split, State, Step

BYTES = State("ndarray", "uint8", (64, 64, 3), "HWC", 0.0, 255.0, 110.0)


def way(sample: int, share: float, **more: Any) -> Journey:
    known = {"file": "data.py", "function": "add_noise", "text": "image + noise", "variable": "x"}
    known["text"] = more.pop("text", known["text"])
    step = Step(**known, line=12, stage=more.pop("stage", "+"), before=BYTES, after=BYTES,
                wraps=share, fields=more.pop("fields", ("image",)), **more)  # fmt: skip
    after = Step(**{**known, "text": "x / 2"}, line=13, stage="/", before=BYTES, after=BYTES,
                 fields=("image",))  # fmt: skip
    return Journey(sample, (step, after), {"image": BYTES})


def found(*ways: Journey) -> list[Finding]:
    split = Split(samples=8, journeys={str(j.sample): j for j in ways})
    return list(judge(Observation(splits={"": split}), select=["overflow-wrap"])[0])


def test_one_error_a_line_with_the_largest_share():
    (finding,) = found(way(0, 0.002), way(1, 0.03), way(2, 0.0))
    assert (finding.severity, finding.where.line, finding.where.sample) == (ERROR, 12, 1)
    assert "3.0%" in finding.message
    assert finding.evidence["shares"] == {"0": 0.002, "1": 0.03}


def test_an_array_that_became_no_field_is_nobodys_concern():
    assert found(way(0, 0.03, fields=())) == []


def test_nothing_is_said_where_nothing_ran_over():
    assert found(way(0, 0.0), way(1, 0.0)) == []


def test_stages_of_libraries_clamp_whatever_their_numbers_look_like():
    jitter = way(0, 0.2, stage="ColorJitter", container="Compose", position=3)
    weighted = {"stage": "cv2.addWeighted", "text": "x = cv2.addWeighted(x, 1.4, x, 0, 9)"}
    assert found(jitter, way(1, 0.2, **weighted)) == []


def test_what_ran_over_before_it_was_clipped_is_seen():
    late = {
        "stage": "Image.fromarray",
        "text": "return Image.fromarray(np.clip(x + noise, 0, 255))",
    }
    assert len(found(way(1, 0.02, **late, container="Compose", position=1))) == 1
