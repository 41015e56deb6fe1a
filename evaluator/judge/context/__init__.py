"""What the stages of one grade share: the reference, the runners, the reference's timing."""
