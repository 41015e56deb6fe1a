"""Documents of the HTTP service, shared by server, storage and client, and their OpenAPI description."""
