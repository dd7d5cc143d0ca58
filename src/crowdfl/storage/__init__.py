"""Every form that CrowdFL puts on disk: databases, blobs, sealed key folders, pools. docs/formats.md has the layouts."""
