# %% [markdown]
# # A day of events, by hand
#
# The cells below run in any editor that knows `# %%`, or from top to bottom with
# `python examples/a_day_of_events.py DATA_DIR`. They do what `geomqtt nightly` does, step by step.

# %%
import sys
import tempfile

from pyspark.sql import functions as F  # noqa: N812

from spark_export import session
from spark_export.analytics import density, silent, tracks, volume
from spark_export.analytics.events import days, of_day, read_events
from spark_export.export import export

data = sys.argv[1] if len(sys.argv) > 1 else "./geomqtt-data"
out = tempfile.mkdtemp(prefix="geomqtt-example-")
spark = session.start()

# %% [markdown]
# ## The log itself is a table
# `topic` is an MQTT filter; it is applied inside the segments.

# %%
log = spark.read.format("geomqtt").option("topic", "fleet/#").load(data)
log.groupBy("client_id").count().orderBy(F.desc("count")).show(5)

# %% [markdown]
# ## Export it, twice: the second time there is nothing left to do

# %%
print(export(spark, data, out))
print(export(spark, data, out))

# %% [markdown]
# ## Ask the export

# %%
events = read_events(spark, out)
today = of_day(events, days(events)[-1])

volumes = volume.volume(today)
volume.per_topic(volumes).show(5, truncate=False)
volume.per_hour(volumes).show(24)

# %%
stepped = tracks.steps(today)
tracks.tracks(stepped).select("client_id", "distance_m", "max_speed_m_s").show(5)

# %%
density.density(today, [10, 12]).orderBy(F.desc("events")).show(5)

# %% [markdown]
# ## Who is overdue at the last moment of the day?

# %%
last = today.agg(F.max("time")).first()
if last is not None:
    silent.silent(today, last[0].astimezone()).show(5)
spark.stop()
