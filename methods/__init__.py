"""Federated methods: the messages of clients and the learning of the server, one file per backend."""
