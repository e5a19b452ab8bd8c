"""Bodies of the server's own, trained under the heads that clients' private bodies were trained under."""
