"""`python -m geomqtt` is `geomqtt`."""

from geomqtt.cli import main

main()
