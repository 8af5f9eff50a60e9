"""IDs of runs: given ones are checked, and those of CI systems are made safe without two becoming one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.ci.run_id import MAX_LENGTH, check_run_id, run_id_of_ci


@pytest.mark.parametrize("text", ["1", "17-1-test", "jenkins-job-12", "a.b_c@d+e%20", "x" * MAX_LENGTH])
def test_an_id_is_accepted(text: str) -> None:
    check_run_id(text)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../x", "a/b", "a\\b", "-x", "a b", "a\nb", "a:b", "é", "x" * (MAX_LENGTH + 1), "a\n", '"']
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an ID of a run; use at most 128 letters"):
        check_run_id(text)


@pytest.mark.parametrize(
    ("environ", "run"),
    [
        ({"GITHUB_RUN_ID": "17", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "test"}, "17-2-test"),
        ({"GITHUB_RUN_ID": "17"}, "17"),
        ({"CI_JOB_ID": "99"}, "99"),
        ({"BUILD_TAG": "jenkins-my job/é-7"}, "jenkins-my%20job%2F%C3%A9-7"),
        ({"BUILD_TAG": "~x"}, "0%7Ex"),
        ({"BUILD_TAG": "::error::"}, "0%3A%3Aerror%3A%3A"),
        ({"GITHUB_RUN_ID": ""}, None),
        ({}, None),
    ],
)
def test_the_ci_systems_job_is_the_run(environ: dict[str, str], run: str | None) -> None:
    assert run == run_id_of_ci(environ)


@given(st.text(min_size=1, max_size=200))
def test_whatever_a_ci_system_gives_is_an_id(text: str) -> None:
    run = run_id_of_ci({"BUILD_TAG": text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")})
    assert run is not None
    check_run_id(run)


@given(st.lists(st.text(min_size=1, max_size=200), min_size=2, max_size=2, unique=True))
def test_two_jobs_have_two_ids(texts: list[str]) -> None:
    ours = [
        run_id_of_ci({"BUILD_TAG": text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")})
        for text in texts
    ]
    assert ours[0] != ours[1]
