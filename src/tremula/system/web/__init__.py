"""The controller over HTTP: API, metrics, the fleet's page, the server."""
