"""Analyses of exported events: plain functions from DataFrame to DataFrame, one module each.

    volume     how much, per topic, client and hour
    density    where, per map tile at several zooms
    tracks     how far and how fast each client moved
    stops      where clients stood still
    dwell      who was inside which fence, from when to when
    trips      from fence to fence
    series     numbers over the day, and those out of line
    silent     who should have spoken and did not

They take the columns of the export (or any DataFrame with the few that each names).
"""
