#!/bin/sh
# Sets up the programs that tests use and pip cannot bring: clients nobody here wrote, Java
# for Spark, a browser for the map. What cannot be set up is named in one line; the tests
# that need it are then reported as not run.
set -u
cd "$(dirname "$0")/.."

missing=""
want() { # program, Debian package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
want mosquitto_pub mosquitto-clients
want java openjdk-17-jre-headless
want chromium chromium
want chromedriver chromium-driver
want node nodejs
want npm npm
want openssl openssl

if [ -n "$missing" ]; then
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "installing$missing ..."
        apt-get update -qq >/dev/null 2>&1
        for package in $missing; do
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 \
                || echo "not set up: $package could not be installed"
        done
    else
        echo "not set up, for want of rights: install$missing (Debian: sudo apt-get install$missing)"
    fi
fi

if command -v npm >/dev/null 2>&1 && [ ! -d .tools/node/node_modules/mqtt ]; then
    mkdir -p .tools/node
    npm install --silent --no-audit --no-fund --prefix .tools/node mqtt@5 >/dev/null 2>&1 \
        || echo "not set up: MQTT.js (npm install mqtt failed)"
fi
exit 0
