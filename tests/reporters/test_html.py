"""The HTML page: what stands in it, that it loads nothing, and that user text is only text."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from dlcheck.findings import ERROR, Finding, Where
from dlcheck.observation import (
    Failure,
    Frame,
    Journey,
    Loader,
    Mark,
    Observation,
    Opened,
    Point,
    Process,
    Split,
    State,
    Step,
)
from dlcheck.observation.pictures import Picture
from dlcheck.reporters import html

PNG = "data:image/png;base64,iVBORw0KGgo="
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><script>1</script>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% for %}",
    "\x1b[31mred\x07 \u202egnp.exe\u2066 \x00 \ud800",
    "'; --><svg onload=alert(1)>",
)


class Tags(HTMLParser):
    """Collects every tag with its attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.tags if name in (a.get("class") or "").split()]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def state(shape=(64, 64, 3), dtype="uint8", layout="HWC", low=0.0, high=255.0):
    return State("ndarray", dtype, shape, layout, low, high)


def journey(file="data.py", sample=0, word=""):
    read = Step(file, 4, "read", "image = cv2.imread(path)", "image", f"cv2.imread{word}",
                state(), fields=("image",), seconds=0.003)  # fmt: skip
    turn = Step(file, 5, "get", "image.permute(2, 0, 1)", "image", f"permute{word}",
                state((3, 64, 64), layout="CHW"), before=state(), parameters=f"2, 0, 1{word}",
                fields=("image",), seconds=0.001)  # fmt: skip
    return Journey(
        sample, (read, turn), {"image": state((3, 64, 64), layout="CHW")},
        (Opened(f"cats/41{word}.png", "cv2.imread", "RGB", "BGR", (64, 64, 3), file, 4),),
    )  # fmt: skip


def process(name="main"):
    marks = tuple(
        Mark(epoch, at, samples=100 * epoch + (100 if at == "end" else 0),
             heap=(50 << 20) + epoch * (8 << 20), anonymous=(90 << 20) + epoch * (8 << 20),
             handles=12, threads=3, children=0)
        for epoch in range(4) for at in ("begin", "end")
    )  # fmt: skip
    points = tuple(Point(0, n, (50 << 20) + n * 80_000) for n in range(1, 400, 8))
    role = "main" if name == "main" else "worker"
    return Process(role, None if role == "main" else 0, marks=marks, points=points)


def full(report, word=""):
    """The shared report with a journey, pictures, memory, and a finding on its second stage."""
    split = Split(
        loader=Loader(cls="torch.utils.data.DataLoader", kind="map", batch_size=8,
                      collate=f"cats.collate{word}", dataset="cats.Cats", notes=(f"note{word}",)),
        samples=240, batches=30, epochs=1, of=240,
        fields=report.observation.splits["train"].fields,
        batch_fields=report.observation.splits["train"].batch_fields,
        journeys={"0": journey(word=word)},
        pictures={"0/0": Picture(0, 0, PNG, 64, 64), "0/1": Picture(0, 1, PNG, 64, 64),
                  "batch/0": Picture("batch", 0, PNG, 64, 64, caption=f"label 3{word}")},
        processes={"main": process(), "w0": process("w0")},
    )  # fmt: skip
    layout = Finding(
        f"image is turned twice{word}",
        Where(split=f"train{word}", field="image", sample=0, stage=f"permute{word}(2, 0, 1)",
              file="data.py", line=5, path=f"cats{word}"),
        {"shapes": {f"3x64x64{word}": 2}, "stderr": f"one\ntwo{word}"},
        ERROR, fix=f"Leave it out.{word}", code="DLC201", rule="hwc-image",
    )  # fmt: skip
    frame = Frame(f"data{word}.py", 3, f"get{word}", f"raise{word}", user=True)
    failure = Failure("sample", f"KeyError{word}", f"no cat{word}", (frame,))
    broken = dataclasses.replace(
        journey(sample=7, word=word), failure=failure, fields={}, failed_stage=f"Crop{word}"
    )
    split = dataclasses.replace(split, journeys={**split.journeys, "7": broken})
    observation = Observation(
        splits={f"train{word}": split}, versions={"torch": f"2.9{word}"}, cut=f"cut{word}"
    )
    return dataclasses.replace(
        report, target=f"cats.yaml{word}", findings=(layout, *report.findings),
        observation=observation,
    )  # fmt: skip


@pytest.fixture
def page(report) -> Tags:
    return Tags(html.render(full(report)))


def test_page_says_verdict_findings_and_what_was_looked_at(page):
    assert page.with_class("verdict")[0]["class"] == "verdict fail"
    assert len(page.with_class("finding")) == 4
    for words in ("image is turned twice", "Leave it out.", "240 of 240 samples", "2 rules ran"):
        assert words in page.text


def test_chain_goes_from_file_to_training_step(page):
    kinds = [stage["class"].split()[1] for stage in page.with_class("stage")]
    assert kinds[:5] == ["file", "stage", "stage", "batch", "model"]
    for words in ("41.png", "cv2.imread", "64x64x3", "3x64x64", "layout CHW", "0 to 255", "3 ms"):
        assert words in page.text


def test_guilty_stage_is_marked_and_linked_both_ways(page):
    guilty = page.with_class("guilty")
    assert guilty[0]["id"] == "s0w0n2"
    assert "error" in guilty[0]["class"]
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert "#s0w0n2" in links
    assert "#finding-1" in links


def test_every_link_leads_to_a_place_on_the_page(page):
    places = {attrs["id"] for _, attrs in page.tags if attrs.get("id")}
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links} <= places


def test_pictures_of_stages_and_of_the_batch_are_inside(page):
    images = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    # Two stages and the batch at the chain's end, then the batch itself.
    assert images == [PNG] * 4


def test_memory_is_drawn_by_process_and_what_grows_is_marked(page):
    plots = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert len(plots) >= 4
    assert "worker 0" in page.text
    assert page.with_class("growing")


def test_failed_sample_ends_in_the_stage_that_raised(page):
    assert page.with_class("raised")
    assert "Crop raised" in page.text
    assert "KeyError: no cat" in page.text


def test_page_loads_nothing_and_holds_no_script(report):
    text = html.render(full(report))
    page = Tags(text)
    assert not [tag for tag, _ in page.tags if tag in {"script", "iframe", "object", "embed"}]
    sources = [v for _, a in page.tags for k, v in a.items() if k in {"src", "href", "srcset"}]
    assert all(value.startswith(("#", "data:")) for value in sources)
    assert not re.search(r"url\(|@import", text)
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_text_adds_no_tag_no_attribute_and_no_control(report, word):
    plain, hostile = Tags(html.render(full(report))), Tags(html.render(full(report, word)))
    shape = [(tag, sorted(attrs)) for tag, attrs in plain.tags]
    assert [(tag, sorted(attrs)) for tag, attrs in hostile.tags] == shape
    text = html.render(full(report, word))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


def test_picture_of_a_saved_run_must_be_one_of_ours(report):
    """The URI of a run that somebody sent is text of theirs."""
    mine = full(report)
    split = mine.observation.splits["train"]
    uris = ("https://evil.example/x.png", 'data:image/png;base64,AA" onload="1', "data:text/html,x")
    pictures = {f"0/{n}": Picture(0, n, uri, 9, 9) for n, uri in enumerate(uris)}
    split = dataclasses.replace(split, pictures=pictures)
    page = html.render(dataclasses.replace(mine, observation=Observation(splits={"train": split})))
    assert "<img" not in page
    assert "evil" not in page


def test_clean_run_says_so_with_what_it_read(report):
    clean = dataclasses.replace(report, verdict="pass", findings=())
    text = Tags(html.render(clean)).text
    assert "Nothing found. train: 240 of 1,281,167 samples" in text


def test_a_run_that_read_nothing_still_has_a_page(report):
    empty = dataclasses.replace(report, observation=Observation(cut="it hung"))
    assert "ended early: it hung" in Tags(html.render(empty)).text


def test_frame_for_notebooks_holds_the_whole_page_escaped(report):
    frame = Tags(html.framed(full(report, HOSTILE[1])))
    assert [tag for tag, _ in frame.tags] == ["iframe"]
    inside = frame.tags[0][1]
    assert inside["sandbox"] == ""
    assert inside["srcdoc"] == html.render(full(report, HOSTILE[1]))
