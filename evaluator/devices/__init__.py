"""The devices a submission can run on: memory shared between judge and runner, and facts about the device."""
