"""Compare-and-sets on MongoDB by itself: `python -m bench.databases.bare_mongo URL`."""

import sys
from typing import Any

from pymongo import AsyncMongoClient, WriteConcern

from bench.databases.bare_loop import MOST_LANES, PAYLOAD, serve
from service_common.event_loop import run


async def _loop(url: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        rows = client.get_default_database().get_collection(
            "bare", write_concern=WriteConcern(w="majority", j=True)
        )
        await rows.insert_many({"_id": lane, "version": 0, "lease": PAYLOAD} for lane in range(MOST_LANES))

        async def compare_and_set(lane: int, version: int) -> bool:
            answer = await rows.update_one(
                {"_id": lane, "version": version}, {"$inc": {"version": 1}, "$set": {"lease": PAYLOAD}}
            )
            return answer.modified_count == 1

        await serve(compare_and_set)


if __name__ == "__main__":
    run(_loop(sys.argv[1]))
