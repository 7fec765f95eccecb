"""The chain of stages: which samples it shows, and which stage a finding speaks of."""

from __future__ import annotations

from dlcheck.findings import ERROR, Finding, Where
from dlcheck.observation import (
    Failure,
    Field,
    Journey,
    Loader,
    ModelRun,
    Split,
    State,
    Step,
    Tally,
)
from dlcheck.observation.steps import Line, Steps
from dlcheck.reporters.chain import MOST_STAGES, chains

RGB = State("ndarray", "uint8", (64, 64, 3), "HWC", 0, 255)
TURNED = State("Tensor", "uint8", (3, 64, 64), "CHW", 0, 255)
LABEL = State("int", "int64", (), "", 2, 2)
LOADER = Loader(cls="torch.DataLoader", file="train.py", line=9, kind="map", batch_size=8,
                collate="torch.default_collate", dataset="cats.Cats")  # fmt: skip


def step(line, stage, after=RGB, fields=("image",), **more):
    return Step("data.py", line, "get", f"code {line}", "x", stage, after, fields=fields, **more)


def journey(sample=0, **more):
    steps = (step(4, "imread"), step(5, "Crop"), step(5, "ToImage", TURNED, before=RGB))
    return Journey(sample, steps, {"image": TURNED, "label": LABEL},
                   returned=("data.py", 8), **more)  # fmt: skip


def split(**more):
    return Split(**{"loader": LOADER, "samples": 90, "batches": 9,
                    "journeys": {"0": journey()}} | more)  # fmt: skip


def finding(rule="a-rule", **where):
    more = {name: where.pop(name) for name in ("explains", "evidence") if name in where}
    return Finding("wrong", Where(**where), severity=ERROR, rule=rule, **more)


def guilty(found, **more):
    """Titles of the blamed stages of the first chain."""
    first = chains("", split(**more), [found])[0]
    return [stage.title for stage in first.stages if stage.blames]


def test_chain_runs_from_the_steps_to_batch_and_training_step():
    (chain,) = chains("", split(), [])
    assert [stage.title for stage in chain.stages] == [
        "Cats", "imread", "Crop", "ToImage", "default_collate", "training step",
    ]  # fmt: skip
    assert chain.stages[3].changed == (True, False, True, False)


def test_of_stages_on_one_line_the_named_one_is_blamed():
    assert guilty(finding(stage="Crop(size=64)", file="data.py", line=5)) == ["Crop"]


def test_a_line_alone_blames_what_it_left_last():
    assert guilty(finding(file="data.py", line=5)) == ["ToImage"]
    assert guilty(finding(file="data.py", line=4)) == ["imread"]


def test_the_line_that_returns_the_sample_blames_its_last_stage():
    assert guilty(finding(file="data.py", line=8)) == ["ToImage"]


def test_the_loaders_line_and_a_failed_collate_blame_the_batch():
    failure = Failure("collate", "RuntimeError", "stack expects")
    assert guilty(finding(file="train.py", line=9)) == ["default_collate"]
    assert guilty(finding(explains=frozenset({failure.key})), failures={failure.key: failure}) == [
        "default_collate"
    ]


def test_a_refusing_model_is_marked_and_blamed():
    run = ModelRun("image", "float32", (8, 1, 64, 64), layer="conv1", kind="Conv2d",
                   wanted="3", got="1", about="channels")  # fmt: skip
    (chain,) = chains("", split(model_run=run, given={"model": {"_target_": "cats.Net"}}),
                      [finding(evidence={"model_error": "Invalid"})])  # fmt: skip
    assert (chain.stages[-1].kind, chain.stages[-1].title) == ("refused", "Net")
    assert chain.stages[-1].blames
    assert "conv1 (Conv2d) wants 3 channels, got 1" in chain.stages[-1].detail


def test_what_speaks_of_another_split_field_or_line_blames_nothing():
    for where in ({"split": "val", "file": "data.py", "line": 5},
                  {"field": "label", "file": "data.py", "line": 7},
                  {"file": "other.py", "line": 5}, {}):  # fmt: skip
        assert guilty(finding(**where)) == []


def test_what_a_stage_did_to_another_field_is_shown_where_its_line_is():
    """A crop of the image that the mask did not get: the mask's own way has no such line."""
    assert guilty(finding(field="label", file="data.py", line=4)) == ["imread"]


def test_a_field_that_no_stage_made_bears_its_finding_as_a_whole():
    fields = {"label": Field(dtypes={"int64": Tally(90)}, shapes={"scalar": Tally(90)})}
    _, chain = chains("", split(fields=fields), [finding(field="label", file="data.py", line=2)])
    assert chain.title == "one sample, label"
    assert [stage.title for stage in chain.stages if stage.blames] == ["the sample"]


def test_steps_of_the_users_collate_come_before_the_batch():
    collate = Journey("batch", (step(40, "/", TURNED), step(41, "+", LABEL, ("label",))))
    journeys = {"0": journey(), "batch": collate}
    (chain,) = chains("", split(journeys=journeys), [finding(file="data.py", line=40)])
    assert [stage.title for stage in chain.stages][-3:] == ["/", "default_collate", "training step"]
    assert chain.stages[-3].blames


def test_a_sample_that_a_finding_names_is_shown_after_a_usual_one():
    journeys = {"0": journey(), "41": journey(41), "77": journey(77)}
    found = chains("", split(journeys=journeys), [finding(sample=41, file="data.py", line=5)])
    assert [chain.title for chain in found] == ["sample 0, image", "sample 41, image"]


def test_without_a_journey_what_is_known_of_the_sample_is_shown():
    seen = Field(dtypes={"float32": Tally(90)}, shapes={"3x64x64": Tally(90)}, low=0, high=1)
    (chain,) = chains("", split(journeys={}, fields={"image": seen}), [])
    assert [stage.kind for stage in chain.stages] == ["file", "sample", "batch", "model"]
    assert chain.stages[1].looks == ("3x64x64", "float32", "", "0 to 1")


def test_a_long_way_loses_its_middle_and_says_so():
    steps = tuple(step(n, f"stage {n}") for n in range(60))
    long = Journey(0, steps, {"image": RGB})
    (chain,) = chains("", split(journeys={"0": long}), [])
    titles = [stage.title for stage in chain.stages]
    assert "36 more stages" in titles
    assert len(titles) == MOST_STAGES + 4
    assert (titles[1], titles[-3]) == ("stage 0", "stage 59")


def test_the_step_says_what_it_did_and_bears_findings_on_its_lines():
    steps = Steps(calls=9, backwards=9, updates=3, lines=(Line("train.py", 30, "step"),))
    (chain,) = chains("", split(steps=steps, given={"step": "train:step"}),
                      [finding(file="train.py", line=30)])  # fmt: skip
    assert chain.stages[-1].title == "step"
    assert chain.stages[-1].detail == "called 9 times, 9 backward passes, 3 updates"
    assert chain.stages[-1].blames
