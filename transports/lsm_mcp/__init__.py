"""The MCP door: our models as tools on stdio.  `command.main` is `lsm-mcp`; the SDK is imported when it serves."""
