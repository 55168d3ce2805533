"""The HTTP door: OpenAI, Anthropic and llama-server routes over lsm.api."""
