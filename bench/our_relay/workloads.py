"""The workloads by the names that the command line has for them."""

from collections.abc import AsyncIterator, Callable, Mapping

from bench.databases.compare_databases import databases
from bench.durable.compare_durable import durable
from bench.our_relay.compare_jobs import jobs
from bench.our_relay.compare_latencies import latencies
from bench.our_relay.compare_renewals import renewals
from bench.our_relay.compare_replicas import drain, replicas
from bench.our_relay.workbench import Bench
from bench.report import Section
from bench.stores.compare_stores import stores

# Its sections, each as soon as it is measured.
Workload = Callable[[Bench], AsyncIterator[Section]]

WORKLOADS: Mapping[str, Workload] = {
    "jobs": jobs,
    "renewals": renewals,
    "latencies": latencies,
    "stores": stores,
    "replicas": replicas,
    "drain": drain,
    "durable": durable,
    "databases": databases,
}
