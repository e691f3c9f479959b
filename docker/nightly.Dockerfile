# The nightly job as a container: the same wheel with its Spark extra, and Java.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /data geomqtt && mkdir -p /data && chown geomqtt /data
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[spark]" && rm -r /wheels
USER geomqtt
VOLUME /data
ENTRYPOINT ["geomqtt"]
CMD ["nightly", "--data", "/data"]
