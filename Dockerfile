# The broker as a container: docker build -t geomqtt . && docker run -p 1883:1883 geomqtt
# Every step here is also run by tests/integration/test_wheel.py, without Docker.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data geomqtt \
    && mkdir -p /data /etc/geomqtt && chown geomqtt /data
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)" && rm -r /wheels
COPY docker/container.toml /etc/geomqtt/geomqtt.toml
USER geomqtt
VOLUME /data
EXPOSE 1883 8083 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["geomqtt"]
CMD ["serve", "--config", "/etc/geomqtt/geomqtt.toml"]
