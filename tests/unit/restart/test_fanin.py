from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from nedura.fanin import Job, Report, stream


def counter(name: str, steps: int) -> Job[str]:
    async def job(report: Report[str]) -> None:
        for step in range(steps):
            report(f"{name}{step}")
            await asyncio.sleep(0)

    return job


async def test_every_item_of_every_job_comes_out_in_its_order() -> None:
    got = [item async for item in stream([counter("a", 3), counter("b", 2), counter("c", 0)])]
    assert [item for item in got if item[0] == "a"] == ["a0", "a1", "a2"]
    assert [item for item in got if item[0] == "b"] == ["b0", "b1"]
    nothing: list[Job[str]] = []
    assert [item async for item in stream(nothing)] == []


async def test_no_more_run_at_once_than_the_limit() -> None:
    now, most = 0, 0

    async def job(report: Report[int]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        report(1)

    assert sum([item async for item in stream([job] * 10, limit=3)]) == 10
    assert most == 3


async def test_an_error_ends_the_others_and_comes_out() -> None:
    ended: list[str] = []

    async def bad(report: Report[int]) -> None:
        raise ValueError("no")

    async def long(report: Report[int]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("long")

    with pytest.raises(ValueError, match="no"):
        async for _ in stream([long, bad]):
            pass
    assert ended == ["long"]


@pytest.mark.parametrize("take", range(4))
async def test_closing_at_any_item_leaves_no_task(take: int) -> None:
    before = asyncio.all_tasks()
    async with aclosing(stream([counter("a", 3), counter("b", 3)])) as items:
        for _ in range(take):
            await anext(items)
    assert asyncio.all_tasks() == before
