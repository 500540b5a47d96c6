"""``changelog-state demo``: a stream, three kills, and a verdict.

::

    run.py        the story, step by step; everything else is called from there
    stream.py     the user's side: a Spark query with StateService.apply, as anyone would write it
    driver.py     the process that runs it, and driver_process.py, its end in the demo's process
    purchases.py  random purchases into the input topic, and the totals folded from that topic alone
    kills.py      who dies, where, and how long it takes until the stream goes on
    check.py      state and outputs against those totals (pure), and results.py, which reads both
    cluster/      the same stream on a cluster, as docker-compose.yml runs it
    report.py     the verdict, as text and as data
"""
