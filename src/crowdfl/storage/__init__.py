"""Every form that CrowdFL puts on disk: key files and pools of randomizers. docs/key-files.md gives both byte by byte."""

__all__: list[str] = []
