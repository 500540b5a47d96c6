"""The demo on a cluster, as ``docker-compose.yml`` runs it: every part in a container of its own.

::

    buy.py       purchases into the input topic, until stopped
    stream.py    the driver: Spark on the cluster, agents that are there already, one hot replica per partition
    check.py     state and outputs against totals folded from the input topic
    progress.py  how far the query has come, by its checkpoint
    settings.py  what all three agree on
"""
