"""The MCP door: our models as tools on stdio, and MCP servers as tools for our models."""
